"""`python -m llamad.proxy`, as the supervisor starts it."""

from llamad.proxy.arbiter import main

if __name__ == "__main__":
    main()
