"""`python -m bayeslim.experiments.comparison`."""

from bayeslim.experiments.comparison import main

if __name__ == "__main__":
    main()
