"""Values as text: cells, numbers, tables on a screen, themes of charts."""
