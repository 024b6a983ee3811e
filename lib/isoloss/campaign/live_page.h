// The report page of runs that another process is making.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace isoloss::campaign {

struct LivePagePlan {
  std::filesystem::path path;  ///< as WatchedRuns takes it
  std::string baseline = {};   ///< as PageContent says
  uint16_t port = 0;           ///< as PageServer takes it
  double interval_seconds = 2;
};

enum class LivePageEnd {
  kSignal,      ///< InterruptFlag
  kEnded,       ///< all runs have ended
  kUnreadable,  ///< likewise, but of some the files can't be read
};

/// Serves the page until a signal comes, or until all runs have ended and each
/// browser had the time to ask for their last state. The data is made when a
/// browser asks, at most once in `interval_seconds`. Calls `at(address)` as
/// soon as it is there.
/// Errors   as PageServer; as OpenLog if `path` is one file and nothing live.
LivePageEnd ServeLivePage(const LivePagePlan& plan,
                          const std::function<void(const std::string&)>& at);

}  // namespace isoloss::campaign
