"""Run the command line as ``python -m streamdedup``."""

from streamdedup.cli.main import main

if __name__ == "__main__":
    main()
