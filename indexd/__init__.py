"""indexd: search over every past coding-agent session, served by one small daemon."""

# A constant, since asking the installed metadata costs a client a tenth of a second.
__version__ = "0.1.0"
