"""What state a model keeps in an engine, and how much of it a request can need."""

if __name__ != "vstate.inventory":
    raise ImportError("import vstate.inventory: the folder inventory/ is not a package of its own")
