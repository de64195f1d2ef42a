"""Reports: terminal tables, HTML pages, charts, traces and explanations of runs, profiles and searches."""
