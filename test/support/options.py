# SPDX-License-Identifier: BSD-3-Clause
"""Options as tests write them: an environment variable, a name of SLUICE_TEST (region_max, fault),
or coll:KIND, a name of SLUICE_COLL."""


def spelled(env):
    """The environment: variables as they are, the other names joined in SLUICE_COLL and SLUICE_TEST."""
    out = {k: str(v) for k, v in env.items() if not is_short(k)}
    lists = {'SLUICE_COLL': [], 'SLUICE_TEST': []}
    for name, value in env.items():
        if name.startswith('coll:'):
            lists['SLUICE_COLL'].append(f'{name[5:].lower()}:{value}')
        elif is_short(name):
            lists['SLUICE_TEST'].append(f'{name}={value}')
    for name, items in lists.items():
        if items:
            out[name] = ','.join(([out[name]] if name in out else []) + items)
    return out


def is_short(name):
    return name.startswith('coll:') or name in SHORT


SHORT = set('''workers worker_cpus early_wait hier_segment region_adopt_min region_max region_pool region_huge
    region_whole xfer_fragment xfer_copy xfer_past_cache xfer_help engine_depth engine_timeout
    worker_poll node_spin engine_fault dsa_root node_name fault'''.split())
