"""How translations are judged: sacreBLEU's scores with their signatures, word statistics, significance."""
