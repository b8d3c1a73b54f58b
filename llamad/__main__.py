"""`python -m llamad child`, the form in which the supervisor starts its children."""

from __future__ import annotations

import sys


def main() -> int:
    """Dispatch on the first argument; the exit status."""
    if sys.argv[1:] == ["child"]:
        from llamad.child.main import main as child_main

        return child_main()
    print("cannot start: only 'child' is known here", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
