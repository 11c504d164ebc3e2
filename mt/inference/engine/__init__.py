"""The fast engine: a checkpoint is converted for CTranslate2 once, verified, kept, and searched with."""
