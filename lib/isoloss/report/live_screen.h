// Shows live runs on a terminal, or line by line in a file.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "isoloss/document/chart.h"
#include "isoloss/report/live_view.h"

namespace isoloss::report {

/// A picture shows the existing runs and the job that makes them.
struct LivePicture {
  std::vector<LiveRun> runs;
  std::optional<LiveJob> job;

  bool empty() const { return runs.empty() && !job; }
};

/// Draws on standard output, over the picture before, on the terminal's
/// alternate screen. Pictures leave no trace among the earlier lines, except
/// for the last picture.
class LiveScreen {
 public:
  explicit LiveScreen(bool ascii);
  ~LiveScreen();
  LiveScreen(const LiveScreen&) = delete;
  LiveScreen& operator=(const LiveScreen&) = delete;

  /// The text names `path` while there is nothing to show.
  void Draw(const LivePicture& picture, const std::filesystem::path& path);
  /// Draws the whole picture, on a terminal or in a file.
  void DrawOnce(const LivePicture& picture) const;

 private:
  std::vector<std::string> Lines(const LivePicture& picture,
                                 const std::filesystem::path& path) const;
  document::TextStyle Style() const;

  const bool terminal_;
  const bool ascii_;
  bool inside_ = false;  // on the alternate screen
  std::vector<std::string> last_;
};

}  // namespace isoloss::report
