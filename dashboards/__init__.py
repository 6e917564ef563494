"""Streamlit pages, and the Plotly figures that they share with the HTML report."""

if __name__ != "vstate.dashboards":
    raise ImportError("import vstate.dashboards: the folder dashboards/ is not a package of its own")
