"""indexd: search over every past coding-agent session, served by one small daemon."""
