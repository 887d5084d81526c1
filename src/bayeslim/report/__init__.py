"""Reports: a page that needs nothing else, and vector figures for papers."""

from bayeslim.report.collecting import collect as collect
from bayeslim.report.collecting import shuffled_features as shuffled_features
from bayeslim.report.content import Content as Content
from bayeslim.report.content import Names as Names
from bayeslim.report.content import Origin as Origin
from bayeslim.report.drawing import write_figures as write_figures
from bayeslim.report.of_run import write_report as write_report
from bayeslim.report.page import page as page

__all__ = ["Content", "Names", "Origin", "collect", "page", "shuffled_features", "write_figures", "write_report"]
