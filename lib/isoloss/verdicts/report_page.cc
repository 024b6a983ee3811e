#include "isoloss/verdicts/report_page.h"

#include <nlohmann/json.hpp>
#include <string>

#include "isoloss/base/atomic_file.h"
#include "isoloss/report/page/page.h"
#include "isoloss/system/output_file.h"

namespace isoloss::verdicts {

void CheckReportPage(const std::filesystem::path& output,
                     const std::vector<std::filesystem::path>& inputs) {
  system::CheckOutput(output, inputs, "report page of isoloss",
                      system::HasFirstLineOf(report::kPageFirstLine));
}

size_t WriteReportPage(const report::PageContent& content,
                       const std::filesystem::path& output) {
  const std::string page = report::RenderPage(report::PageData(content));
  WriteFileAtomically(output, page);
  return page.size();
}

}  // namespace isoloss::verdicts
