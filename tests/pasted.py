"""Error messages and stack traces, made up, as they stand in a session and as they are pasted.

`stored` is what a tool said; `pasted` is what a person takes from a terminal or a log, whole or
in part, with the numbers and directories of another day.
"""

from __future__ import annotations

from typing import NamedTuple


class Paste(NamedTuple):
    """A text in a session, and what is pasted to find it."""

    stored: str
    pasted: str


PASTES = [
    Paste(
        """Traceback (most recent call last):
  File "/home/ana/src/kettle/kettle/boiler.py", line 88, in heat
    self.valve.open(pressure=target)
  File "/home/ana/src/kettle/kettle/valve.py", line 41, in open
    raise ValveStuckError(f"valve {self.name} did not move within {timeout}s")
kettle.valve.ValveStuckError: valve inlet-3 did not move within 5s""",
        """Traceback (most recent call last):
  File "/Users/bo/kettle/kettle/boiler.py", line 91, in heat
    self.valve.open(pressure=target)
kettle.valve.ValveStuckError: valve inlet-7 did not move within 9s""",
    ),
    Paste(
        "sqlite3.OperationalError: database is locked (ledger.db, after 5 retries)",
        "sqlite3.OperationalError: database is locked (ledger.db, after 5 retries)",
    ),
    Paste(
        "TypeError: Cannot read properties of undefined (reading 'teapotId')\n"
        "    at renderShelf (/src/ui/shelf.tsx:14:22)\n    at Array.map (<anonymous>)",
        "TypeError: Cannot read properties of undefined (reading 'teapotId')",
    ),
    Paste(
        "error[E0502]: cannot borrow `self.lanes` as mutable because it is also borrowed as"
        " immutable\n  --> src/ferry/dock.rs:77:9\n   |\n75 |     let lane = &self.lanes[0];",
        "error[E0502]: cannot borrow `self.lanes` as mutable because it is also borrowed",
    ),
    Paste(
        "panic: runtime error: index out of range [12] with length 12\n\ngoroutine 34 [running]:\n"
        "example.org/tram/sched.(*Planner).nextStop(0xc0001a2000, 0xc)\n"
        "\t/go/src/tram/sched/planner.go:203 +0x1d4",
        "goroutine 51 [running]:\nexample.org/tram/sched.(*Planner).nextStop(0xc000ff0000, 0xd)\n"
        "\t/go/src/tram/sched/planner.go:210 +0x1d4",
    ),
    Paste(
        'Exception in thread "main" java.lang.NullPointerException: Cannot invoke'
        ' "org.mill.Grain.weight()" because "grain" is null\n'
        "\tat org.mill.Hopper.fill(Hopper.java:58)\n\tat org.mill.Main.main(Main.java:12)",
        'java.lang.NullPointerException: Cannot invoke "org.mill.Grain.weight()" because',
    ),
    Paste(
        "npm ERR! code ERESOLVE\nnpm ERR! ERESOLVE unable to resolve dependency tree\n"
        'npm ERR! Found: lantern-core@4.2.0\nnpm ERR! peer lantern-core@"^3.0.0" from'
        " lantern-wick@3.1.1",
        'npm ERR! peer lantern-core@"^3.0.0" from lantern-wick@3.1.1',
    ),
    Paste(
        "FAILED tests/test_orchard.py::test_pruning_keeps_the_leader - assert 3 == 4\n"
        " +  where 3 = len(<generator object branches at 0x7f21>)",
        "FAILED tests/test_orchard.py::test_pruning_keeps_the_leader - assert 3 == 4",
    ),
    Paste(
        "fatal: refusing to merge unrelated histories while pulling quarry/main",
        "git pull quarry main -> fatal: refusing to merge unrelated histories",
    ),
    Paste(
        "CMake Error at cmake/FindPulley.cmake:19 (message):\n  Could NOT find Pulley (missing:"
        " PULLEY_LIBRARY PULLEY_INCLUDE_DIR)",
        "Could NOT find Pulley (missing: PULLEY_LIBRARY PULLEY_INCLUDE_DIR)",
    ),
    Paste(
        "thread 'main' panicked at src/loom/warp.rs:9:5:\ncalled `Result::unwrap()` on an `Err`"
        " value: Tension { thread: 40, newton: 3.2 }",
        "called `Result::unwrap()` on an `Err` value: Tension { thread: 41, newton: 2.9 }",
    ),
    Paste(
        "curl: (60) SSL certificate problem: unable to get local issuer certificate for"
        " https://depot.example.org:8443/v2/crates?page=2&sort=-age",
        "https://depot.example.org:8443/v2/crates?page=2&sort=-age",
    ),
    Paste(
        "Error response from daemon: driver failed programming external connectivity on endpoint"
        " beehive (0e1f): Bind for 0.0.0.0:5433 failed: port is already allocated",
        "Bind for 0.0.0.0:5433 failed: port is already allocated (beehive)",
    ),
    Paste(
        '{"level":"error","ts":"2026-05-04T03:02:01Z","msg":"sluice gate rejected","gate":"east-2",'
        '"reason":"level below minimum","attempt":3}',
        '{"level":"error","ts":"2026-06-01T10:00Z","msg":"sluice gate rejected","gate":"east-2"}',
    ),
    Paste(
        'ld: symbol(s) not found for architecture arm64\nUndefined symbols: "_bellows_inflate",'
        " referenced from: _main in organ.o",
        'Undefined symbols: "_bellows_inflate", referenced from: _main in organ.o',
    ),
    Paste(
        "src/compass/needle.cpp:31:18: error: no member named 'declination' in 'geo::Bearing';"
        " did you mean 'inclination'?\n    return bearing->declination;",
        "error: no member named 'declination' in 'geo::Bearing' bearing->declination",
    ),
    Paste(
        "System.InvalidOperationException: Sequence contains no matching element\n"
        "   at Harbor.Berths.FirstFree(Vessel v) in C:\\Users\\kim\\Harbor\\Berths.cs:line 64",
        "at Harbor.Berths.FirstFree(Vessel v) in C:\\Users\\ola\\Harbor\\Berths.cs:line 70",
    ),
    Paste(
        'rsync: [sender] link_stat "/srv/attic/maps 2" failed: No such file or directory (2)\n'
        "rsync error: some files/attrs were not transferred (code 23) at main.c(1338)",
        'rsync -avz --delete "/srv/attic/maps 2" host:/srv/',
    ),
    Paste(
        "E   AttributeError: 'NoneType' object has no attribute 'coppice_after'\n\n"
        "woodland/plan.py:112: AttributeError",
        "AttributeError: 'NoneType' object has no attribute 'coppice_after'",
    ),
    Paste(
        'kubectl: Error from server (NotFound): deployments.apps "windmill-api" not found in'
        ' namespace "polder"',
        "kubectl get deploy -n polder windmill-api",
    ),
    Paste(
        "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xe4 in position 17: invalid"
        " continuation byte (reading ledger_köln.csv)",
        "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xe4 ledger_köln.csv",
    ),
    Paste(
        "错误：无法连接到数据库“果园”，请检查连接字符串（代码 1045）",
        "无法连接到数据库“果园”",
    ),
    Paste(
        "エラー: 設定ファイル harvest.toml の読み込みに失敗しました (行 12)",
        "設定ファイル harvest.toml の読み込みに失敗",
    ),
    Paste(
        'bash: line 4: syntax error near unexpected token `done\'\nfor f in *.oat; do sift "$f" |'
        " tee -a sifted.log; done",
        'for f in *.oat; do sift "$f" | tee -a sifted.log; done',
    ),
    Paste(
        'pq: duplicate key value violates unique constraint "apiary_hive_no_key" (SQLSTATE 23505)',
        'violates unique constraint "apiary_hive_no_key"',
    ),
    Paste(
        "warning: unused variable: `ballast`\nerror: aborting due to 2 previous errors; 1 warning"
        " emitted\nerror: could not compile `bargehand` (lib test)",
        "error: could not compile `bargehand` (lib test) due to 2 previous errors",
    ),
    Paste(
        "Segmentation fault (core dumped)\n#0  0x000055d1 in furnace_stoke (f=0x0) at"
        " furnace.c:219\n#1  0x000055d9 in main () at main.c:40",
        "#0  0x00007ffa in furnace_stoke (f=0x0) at furnace.c:221\n#1  0x00007fff in main ()",
    ),
    Paste(
        "ModuleNotFoundError: No module named 'tinsmith.rivets'; 'tinsmith' is not a package",
        "ModuleNotFoundError: No module named 'tinsmith.rivets'; 'tinsmith' is not a package",
    ),
    Paste(
        "terraform: Error: Cycle: module.weir.aws_subnet.a, module.weir.aws_route.b (close)",
        "terraform apply -auto-approve -target=module.weir.aws_route.b",
    ),
    Paste(
        "warden@gaol.example.org: Permission denied (publickey,keyboard-interactive).",
        "ssh -vvv warden@gaol.example.org",
    ),
]
