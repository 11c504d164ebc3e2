"""How translations are evaluated: sacreBLEU scores with signatures, word statistics, significance."""
