// Declares a study: a plan of runs, an estimate of what their numbers say, a
// rule, and a document. Each study is one file and one line of studies.def.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "isoloss/campaign/experiment_source.h"
#include "isoloss/document/document.h"
#include "isoloss/document/picture.h"
#include "isoloss/studies/plan.h"
#include "isoloss/system/exit_code.h"

namespace isoloss::studies {

/// An option is an argument of one study, with the member that takes its value.
struct Option {
  const char* name;  ///< "--seeds"; "logs" of what stands without a name
  std::variant<campaign::ExperimentSource*, bool*, size_t*, int64_t*, double*,
               std::optional<double>*, std::string*, std::filesystem::path*,
               std::vector<double>*, std::vector<std::string>*,
               std::vector<std::filesystem::path>*>
      value;
  const char* help = "";
  /// A number must be at least the first and at most the second.
  double least = 0;
  double most = 0;
  std::vector<std::string> words = {};  ///< a text must be one of them
  const char* type_name = nullptr;      ///< what help calls the value
  bool required = false;
  bool repeatable = false;
  bool not_quick = false;  ///< refused beside --quick
};

/// Every study gets this request.
struct Request {
  std::filesystem::path out = {};  ///< "": the study's own folder
  bool estimate = true;            ///< measure what the runs cost
};

/// A file in the study's folder. If the text is empty, the file is removed.
struct File {
  std::string name;
  std::string text;
};

/// An answer is all that the runs say.
struct Answer {
  system::ExitCode code = system::ExitCode::kPass;
  document::Document document = {};  ///< KIND.json, and text
  document::Picture picture = {};    ///< KIND.svg
  std::vector<File> files = {};      ///< further files
};

class Study {
 public:
  virtual ~Study() = default;

  virtual std::vector<Option> Options() = 0;

  /// Called once the options have their values.
  /// Errors   ConfigError and more if the options ask for something that does
  ///          not exist.
  virtual Plan MakePlan(const Request& request) = 0;

  /// Describes for people what the plan trains and how long it takes.
  virtual std::string Describe(const Plan& plan) const;

  /// Judges the finished runs, however few there are. With `may_train` it may
  /// train further runs that depend on them. Empty if a signal came meanwhile.
  /// Errors   as logs::ReadRuns; ThrowNothingToJudge.
  virtual std::optional<Answer> Judge(const Plan& plan, bool may_train) = 0;
};

struct StudyKind {
  const char* name;
  const char* summary;
  const char* example;
  /// The help describes the study's own folder with this text; null if it
  /// trains nothing.
  const char* folder;
  std::unique_ptr<Study> (*make)();
};

#define ISOLOSS_STUDY(name) extern const StudyKind kStudy_##name;
#include "isoloss/studies/studies.def"
#undef ISOLOSS_STUDY

/// Writes KIND.json, KIND.svg and the files of an answer. Errors   IoError.
void WriteAnswer(const Plan& plan, const Answer& answer);

/// Returns `out`, or runs/<name>-<kind>, with "-quick" at its end if `quick`:
/// the runs of --quick are no part of the whole study.
std::filesystem::path FolderOfStudy(const std::string& name,
                                    const std::string& kind, bool quick,
                                    const std::filesystem::path& out);

/// Returns the option --seeds, which is at least 2.
Option SeedsOption(size_t& seeds, const char* help);

/// Writes a line for each note.
void SayNotes(const std::vector<std::string>& notes,
              document::Document& document);

}  // namespace isoloss::studies
