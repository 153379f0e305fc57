"""From the command line to a finished run."""

import sys

from launcher import arguments
from launcher.errors import UserError


def main(argv: list[str]) -> int:
    """Do what ``argv`` says and return the exit status: 0 done, 2 a mistake of the user, 130 and 143 interrupted."""
    try:
        if {"-h", "--help"} & set(argv):
            print(arguments.USAGE)
            return 0
        typed = arguments.parse(argv)
        if typed.shows_list:
            from launcher.listing import listing

            print(listing())
            return 0
        from launcher.lazy_torchmetrics import import_torchmetrics_lazily
        from launcher.quiet import quiet

        quiet()
        import_torchmetrics_lazily()
        from launcher.cuda_check import settle_cuda_check
        from launcher.run import Run

        settle_cuda_check()
        return Run(typed, argv).execute()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
