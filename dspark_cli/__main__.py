"""``dspark`` and ``python -m dspark_cli``."""

from dspark_cli.errors import INTERRUPTED_EXIT_CODE


def main() -> None:
    """Run one command; Ctrl-C while its modules are still being imported is no traceback."""
    try:
        from dspark_cli.cli.app import main as dspark  # noqa: PLC0415  it takes a third of a second

        dspark()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED_EXIT_CODE) from None


if __name__ == "__main__":
    main()
