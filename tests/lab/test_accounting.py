"""The lab with accounting comes with its daemons, and goes with them."""

from __future__ import annotations

import pytest

from tests.lab import daemons
from tests.lab.accounting import ACCOUNT, AccountingLab


def test_the_user_has_the_account_and_the_qos_that_were_made(accounting_lab: AccountingLab) -> None:
    mine, other = accounting_lab.qos("MaxTRESPerJob=gres/gpu=4"), accounting_lab.qos(allowed=False)
    told = accounting_lab.run(
        "sacctmgr", "-nP", "show", "assoc", f"user={accounting_lab.user}", f"account={ACCOUNT}", "format=qos"
    )
    assert {"normal", mine} <= set(told.strip().split(","))
    assert other not in told.strip().split(",")


def test_slurmdbd_goes_and_comes_back(accounting_lab: AccountingLab) -> None:
    accounting_lab.stop_slurmdbd()
    with pytest.raises(daemons.LabError, match="Connection refused"):
        accounting_lab.run("sacct")
    accounting_lab.mend()
    accounting_lab.run("sacct")


@pytest.mark.usefixtures("accounting_parts")
def test_stop_leaves_no_process_behind() -> None:
    with AccountingLab(nodes=1) as lab:
        before = daemons.born(lab.pids)
        commands = [daemons.command(pid) for pid in before]
        for program in ("mariadbd", "slurmdbd", "slurmctld"):
            assert any(f"/{program} " in command for command in commands)
    assert daemons.survivors(before) == []
    assert not lab.root.exists()
