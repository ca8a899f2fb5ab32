from . import demo as demo
from . import forecast_files as forecast_files
from . import kept_runs as kept_runs
from . import ledger_tables as ledger_tables
from . import model_files as model_files
from . import predictions as predictions
from . import requests as requests
from . import runs as runs
