from . import demonstration as demonstration
from . import forecast_files as forecast_files
from . import ledger_tables as ledger_tables
from . import model_files as model_files
from . import runs as runs
