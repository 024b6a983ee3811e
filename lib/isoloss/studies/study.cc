#include "isoloss/studies/study.h"

#include "isoloss/base/atomic_file.h"
#include "isoloss/document/json.h"

namespace isoloss::studies {

std::string Study::Describe(const Plan& /*plan*/) const { return ""; }

void WriteAnswer(const Plan& plan, const Answer& answer) {
  std::filesystem::create_directories(plan.folder);
  WriteFileAtomically(plan.folder / (plan.kind + ".json"),
                      document::RenderJson(answer.document));
  WriteFileAtomically(plan.folder / (plan.kind + ".svg"),
                      document::RenderSvg(answer.picture));
  for (const File& file : answer.files) {
    if (file.text.empty()) {
      std::filesystem::remove(plan.folder / file.name);
    } else {
      WriteFileAtomically(plan.folder / file.name, file.text);
    }
  }
}

std::filesystem::path FolderOfStudy(const std::string& name,
                                    const std::string& kind, bool quick,
                                    const std::filesystem::path& out) {
  if (!out.empty()) return out;
  return std::filesystem::path("runs") /
         (name + "-" + kind + (quick ? "-quick" : ""));
}

Option SeedsOption(size_t& seeds, const char* help) {
  return {.name = "--seeds",
          .value = &seeds,
          .help = help,
          .least = 2,
          .most = 10'000,
          .not_quick = true};
}

void SayNotes(const std::vector<std::string>& notes,
              document::Document& document) {
  for (const std::string& note : notes) document.Say(note);
}

}  // namespace isoloss::studies
