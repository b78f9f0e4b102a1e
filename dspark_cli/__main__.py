"""``dspark`` and ``python -m dspark_cli``."""

from dspark_cli.cli.app import main

if __name__ == "__main__":
    main()
