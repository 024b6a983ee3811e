// Live runs on a terminal, or line by line where there is none.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/document/chart.h"
#include "isoloss/report/live_view.h"

namespace isoloss::report {

/// One picture: the runs that are there and the job that makes them.
struct LivePicture {
  std::vector<LiveRun> runs;
  std::optional<LiveJob> job;

  bool empty() const { return runs.empty() && !job; }
};

/// Draws on standard output, over what it drew before, on the terminal's other
/// screen: pictures leave no trace among the lines above, but for the last one.
class LiveScreen {
 public:
  explicit LiveScreen(bool ascii);
  ~LiveScreen();
  LiveScreen(const LiveScreen&) = delete;
  LiveScreen& operator=(const LiveScreen&) = delete;

  /// `path` is named while nothing is there.
  void Draw(const LivePicture& picture, const std::filesystem::path& path);
  /// The whole picture, wherever it goes.
  void DrawOnce(const LivePicture& picture) const;

 private:
  std::vector<std::string> Lines(const LivePicture& picture,
                                 const std::filesystem::path& path) const;
  document::TextStyle Style() const;

  const bool terminal_;
  const bool ascii_;
  bool inside_ = false;  // the other screen
  std::vector<std::string> last_;
};

}  // namespace isoloss::report
