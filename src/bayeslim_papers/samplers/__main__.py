"""`python -m bayeslim.experiments.samplers`."""

from bayeslim.experiments.samplers import main

if __name__ == "__main__":
    main()
