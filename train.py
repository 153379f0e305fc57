"""Launch any experiment of Leyden: ``python train.py --config configs/<method>/<task>.yaml``."""

import sys

from launcher.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
