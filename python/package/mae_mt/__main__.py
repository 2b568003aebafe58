"""The program `mae`: `mae …` and `python -m mae_mt …`."""

import signal
import sys

from ._mae import run_program


def main() -> int:
    # The program answers Ctrl-C itself.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return run_program(["mae", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
