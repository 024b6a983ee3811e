#include "isoloss/campaign/live_page.h"

#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>

#include "isoloss/campaign/interrupt.h"
#include "isoloss/campaign/open_log.h"
#include "isoloss/campaign/page_server.h"
#include "isoloss/campaign/watched_runs.h"
#include "isoloss/report/page.h"
#include "isoloss/report/page_data.h"
#include "isoloss/report/page_values.h"
#include "isoloss/runlog/recorder.h"

namespace isoloss::campaign {
namespace {

namespace fs = std::filesystem;

/// Browsers that ask a little late.
constexpr double kLateSeconds = 3;

/// The runs as they stand, and what the page says of them.
class LivePage {
 public:
  explicit LivePage(const LivePagePlan& plan)
      : plan_(plan), watched_(plan.path) {}

  void Update() {
    watched_.Update();
    data_.reset();
    text_.reset();
  }

  const WatchedRuns& watched() const { return watched_; }

  ServedPage Content() {
    return {
        .page =
            [this] {
              return std::make_shared<std::string>(report::RenderPage(Data()));
            },
        .data =
            [this] {
              if (!text_) {
                text_ = std::make_shared<std::string>(report::PageJson(Data()));
              }
              return text_;
            }};
  }

 private:
  const document::Json& Data() {
    if (!data_) {
      const report::LivePicture picture{watched_.Runs(), watched_.Job()};
      data_ = std::make_unique<document::Json>(
          report::PageData({.baseline = plan_.baseline,
                            .live = &picture,
                            .refresh_seconds = plan_.interval_seconds,
                            .ended = watched_.ended()}));
    }
    return *data_;
  }

  const LivePagePlan& plan_;
  WatchedRuns watched_;
  std::unique_ptr<const document::Json> data_;
  std::shared_ptr<const std::string> text_;
};

/// Says at once what is wrong with a single run's file.
void CheckPagePath(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return;
  if (fs::exists(runlog::RunPaths::Of(path).Journal(), error)) return;
  OpenLog(path);
}

}  // namespace

LivePageEnd ServeLivePage(const LivePagePlan& plan,
                          const std::function<void(const std::string&)>& at) {
  CheckPagePath(plan.path);
  LivePage page(plan);
  page.Update();
  PageServer server(plan.port, page.Content());
  ListenToSignals();  // from here on a signal ends the loop, not the program
  at(server.address());
  while (!page.watched().ended()) {
    if (!server.Serve(plan.interval_seconds)) return LivePageEnd::kSignal;
    page.Update();
  }
  // Whoever has the page asks once more.
  if (!server.Serve(2 * plan.interval_seconds + kLateSeconds)) {
    return LivePageEnd::kSignal;
  }
  return page.watched().unreadable() ? LivePageEnd::kUnreadable
                                     : LivePageEnd::kEnded;
}

}  // namespace isoloss::campaign
