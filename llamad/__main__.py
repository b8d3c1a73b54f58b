"""`llamad`, and `python -m llamad child` for its children.

Imports stand inside the functions: a child must put its stdout out of reach before anything heavy is imported, and
`--version` must not pay for a supervisor.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from llamad.exit_status import EXIT_BAD_CONFIG, EXIT_CLEAN, EXIT_INTERNAL, EXIT_UNAVAILABLE, EXIT_USAGE

if TYPE_CHECKING:
    from llamad.daemon.spawn import Commands


def main() -> int:
    """Run the program that the command line names and return its exit status."""
    if sys.argv[1:2] == ["child"]:
        from llamad.child.main import main as child_main

        return child_main()
    return daemon_main(sys.argv[1:])


def daemon_main(argv: list[str], commands: Commands | None = None) -> int:
    """0 clean stop, 1 bad configuration, 2 usage, 69 an address is taken, 70 internal. `commands`: see `start.run`."""
    import os
    import traceback

    from llamad.config.load import UsageError, help_text, parse_args
    from llamad.errors import AddressTakenError, ConfigError

    try:
        match parse_args(argv).action:
            case "help":
                print(help_text(), end="")
                return EXIT_CLEAN
            case "version":
                from llamad import __version__

                print(f"llamad {__version__}")
                return EXIT_CLEAN
            case "check":
                return check(argv)
            case _:
                from llamad.daemon.start import run

                return run(argv, os.environ, commands)
    except UsageError as error:
        print(f"llamad: {error}\nTry 'llamad --help'.", file=sys.stderr)
        return EXIT_USAGE
    except ConfigError as error:
        print(f"llamad: {error}", file=sys.stderr)
        return EXIT_UNAVAILABLE if isinstance(error, AddressTakenError) else EXIT_BAD_CONFIG
    except Exception:  # noqa: BLE001 - Python's own status would read as bad configuration
        traceback.print_exc()
        return EXIT_INTERNAL


def check(argv: list[str]) -> int:
    """Print every problem of the configuration; nothing is started."""
    import os

    from llamad.config.check import exit_status, render, summary
    from llamad.config.load import load

    loaded = load(argv, os.environ)
    print(render(loaded.registry.problems) + summary(loaded), end="")
    return exit_status(loaded)


if __name__ == "__main__":
    sys.exit(main())
