"""What README and docs state of real tables: ``python -m experiments NAME`` measures it again."""
