# SPDX-License-Identifier: Apache-2.0
"""Style of pages, for light and for dark: colours, text, cards and tables of the status page and of stress reports."""

from __future__ import annotations

from typing import Final

#: CSS. A page adds what only it has.
PAGE_STYLE: Final = """
:root { color-scheme: light dark; --ground: #f6f7f9; --card: #fff; --ink: #1a202b; --dim: #5b6675; --rule: #dfe3e9;
  --accent: #2563c9; --cap: #b4491a; --good: #177245; --bad: #b3261e; --wait: #8a6100; }
@media (prefers-color-scheme: dark) { :root { --ground: #12151b; --card: #1b2029; --ink: #e6e9ef; --dim: #9aa5b4;
  --rule: #303844; --accent: #72a7ff; --cap: #f0956a; --good: #5fc992; --bad: #ff8a80; --wait: #e3b74f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 20px 16px 40px; max-width: 1120px; background: var(--ground); color: var(--ink);
  font: 15px/1.45 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 20px; margin: 0; } h2 { font-size: 16px; margin: 0; overflow-wrap: anywhere; }
h3 { font-size: 13px; margin: 0 0 4px; color: var(--dim); font-weight: 600; }
a { color: var(--accent); }
code, pre, .name { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .93em; }
.dim { color: var(--dim); }
.pill { border: 1px solid currentColor; border-radius: 99px; padding: 0 9px; font-size: 12px; font-weight: 600; }
.ok { color: var(--good); } .bad { color: var(--bad); } .wait { color: var(--wait); }
section { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 16px;
  margin-top: 16px; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th { font-weight: 600; color: var(--dim); } td { border-top: 1px solid var(--rule); }
"""
