from . import datatree as datatree
from . import files as files
from . import ledger_page as ledger_page
from . import plots as plots
from . import report as report
from . import survival as survival
