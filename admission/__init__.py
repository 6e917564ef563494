"""The shipped admission module: scheduler classes, gate, corrections loader, prefix guard."""

if __name__ != "vstate.admission":
    raise ImportError("import vstate.admission: the folder admission/ is not a package of its own")
