"""What `import bicoastal` offers to scripts, notebooks and the command line, where no other room has it already.

`bicoastal/__init__.py` lists every public name and the module that it comes from.
"""
