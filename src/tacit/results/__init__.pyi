from . import ledger_page as ledger_page
from . import plots as plots
