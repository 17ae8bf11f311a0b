"""`python -m panacea`."""

from panacea.cli import main

if __name__ == "__main__":
    main()
