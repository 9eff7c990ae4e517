"""How the status page looks: one style sheet, in the page itself, for light and for dark. Nothing is loaded."""

from __future__ import annotations

from typing import Final

__all__ = ["STYLE"]

STYLE: Final = """
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
code, .name { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .93em; }
header, .head { display: flex; flex-wrap: wrap; gap: 4px 12px; align-items: center; }
.dim { color: var(--dim); } p { margin: 6px 0; }
.pill { border: 1px solid currentColor; border-radius: 99px; padding: 0 9px; font-size: 12px; font-weight: 600; }
.ok { color: var(--good); } .bad { color: var(--bad); } .wait { color: var(--wait); }
.card { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 16px; margin-top: 16px; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(190px, 1fr)); gap: 12px 24px; margin: 14px 0; }
.tile b { display: block; font-size: 22px; font-weight: 600; font-variant-numeric: tabular-nums; }
.meter { height: 6px; border-radius: 3px; background: var(--rule); margin-top: 6px; overflow: hidden; }
.meter i { display: block; height: 100%; background: var(--accent); }
.charts { display: grid; grid-template-columns: 1fr 1fr; gap: 12px 24px; } .charts .wide { grid-column: 1 / -1; }
.lists { display: grid; grid-template-columns: repeat(3, 1fr); gap: 12px 24px; margin-top: 16px; }
@media (max-width: 860px) { .charts, .lists { grid-template-columns: 1fr; } }
svg { width: 100%; height: auto; display: block; }
.grid { stroke: var(--rule); stroke-width: 1; }
.tick { fill: var(--dim); font-size: 12px; }
@media (max-width: 860px) { .wide .tick { font-size: 24px; } }
.start { text-anchor: start; } .middle { text-anchor: middle; } .end { text-anchor: end; }
.area { fill: var(--accent); opacity: .16; } .line { fill: none; stroke: var(--accent); stroke-width: 2; }
.cap { fill: none; stroke: var(--cap); stroke-width: 1.5; stroke-dasharray: 6 4; }
.bar, .dot { fill: var(--accent); }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: var(--dim); } th, td { padding: 3px 8px 3px 0; white-space: nowrap; }
td { border-top: 1px solid var(--rule); } .number { text-align: right; padding-right: 0; }
footer { margin-top: 20px; } ul { margin: 6px 0; padding-left: 20px; }
"""
