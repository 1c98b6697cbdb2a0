# SPDX-License-Identifier: Apache-2.0

"""Loop that sends the reports of the agent: its heartbeat and its news."""

import json
import threading
import time
import typing

from secondary_scheduler.agent import processes, threads
from secondary_scheduler.agent.reporter import Reporter
from secondary_scheduler.agent.wiring import Parts
from secondary_scheduler.model.reports import HostReport

if typing.TYPE_CHECKING:
    from secondary_scheduler.reports.report_messages import ReportSender

#: Interval of checks for news, because not all news sets the event.
_NEWS_S = 1.0
#: Shortest time between two reports, however often the news changes.
_GAP_S = 0.2
#: Network traffic that reports without news may cause, in bytes a second.
_TRAFFIC = 500


class ReportLoop:
    """Sends a report at once when there is news, else periodically.

    It ends when ``stop`` is set.
    """

    def __init__(self, parts: Parts, reporter: Reporter,
                 stop: threading.Event) -> None:
        self._parts = parts
        self._reporter = reporter
        self._stop = stop

    def run(self, sender: 'ReportSender') -> None:
        """Send reports, and begin again after an error."""
        processes.show_thread_name()
        send = threads.log_errors(lambda: self.send_reports(sender))
        while not self._stop.is_set():
            send()

    def send_reports(self, sender: 'ReportSender') -> None:
        """Send reports until ``stop`` is set or an exception is raised."""
        last_news: object = None
        sent_at = pause = 0.0
        while not self._stop.is_set():
            self._parts.news.wait(_NEWS_S)
            self._parts.news.clear()
            news = self._reporter.news()
            if news != last_news or time.monotonic() - sent_at >= pause:
                report = self._reporter.build_report()
                sender.send(report)
                last_news, sent_at = news, time.monotonic()
                pause = self.pause_after(report)
                self._stop.wait(_GAP_S)

    def pause_after(self, report: HostReport) -> float:
        """Return the seconds until a report is repeated.

        The time grows with the length of the report.  It is at most half of
        ``report_stale_after``, so that one lost report does no harm.
        """
        shared = self._parts.conf.secondary_scheduler
        return max(float(shared.report_interval), min(
            len(json.dumps(report.to_dict())) / _TRAFFIC,
            float(shared.report_stale_after) / 2))
