"""The records of a whole benchmark in one compressed file: the column `table` says which table a row is of.

rows = pandas.read_parquet("records.parquet")
rows.query("table == 'records' and metric == 'nll'").dropna(axis="columns", how="all")
"""

import json
from pathlib import Path

import pandas as pd

from prerank._reading import require_regular
from prerank._writing import whole_file

NAME = "records.parquet"
_COLUMNS = b"columns of the tables"  # in the file's metadata: a column may be empty, and is one nevertheless


def write_record_file(tables: dict[str, pd.DataFrame], path: Path) -> Path:
    """Write tables, by name, into one Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts = [
        pa.Table.from_pandas(table, preserve_index=False).add_column(0, "table", pa.array([name] * len(table)))
        for name, table in tables.items()
    ]
    whole = pa.concat_tables([part.replace_schema_metadata(None) for part in parts], promote_options="default")
    columns = {name: list(table.columns) for name, table in tables.items()}
    with whole_file(path) as partial:
        pq.write_table(
            whole.replace_schema_metadata({_COLUMNS: json.dumps(columns)}),
            partial,
            compression="zstd",
            row_group_size=1 << 22,
        )
    return path


def read_record_file(path: Path) -> dict[str, pd.DataFrame]:
    """The tables of a file that `write_record_file` made, by name."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    require_regular(path)
    try:
        whole = pq.ParquetFile(path).read()
        columns: dict[str, list[str]] = json.loads(whole.schema.metadata[_COLUMNS])
        return {
            name: whole.filter(pc.equal(whole["table"], pa.scalar(name))).select(own).to_pandas()
            for name, own in columns.items()
        }
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        text = " ".join(str(error).split())
        raise ValueError(f"{path} is not a file of records ({text}); restore it") from error
