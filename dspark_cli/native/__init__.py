"""The only ctypes of this package: symbols, structures and callbacks of libllama.

Everything here mirrors a C header line by line. The engine calls these functions and owns what
they return; nothing above the engine sees a pointer.
"""
