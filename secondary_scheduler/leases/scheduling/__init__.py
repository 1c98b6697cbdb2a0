"""Pure lease scheduler, after Haizea (Sotomayor 2010)."""
