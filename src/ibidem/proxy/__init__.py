"""A local reverse proxy that rewrites requests on their way and passes everything else on as it came."""
