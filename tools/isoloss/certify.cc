// Implements `isoloss certify`, which says whether runs are equal to the bit.

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "ci_arguments.h"
#include "commands.h"
#include "isoloss/base/executor.h"
#include "isoloss/certify/certificate.h"
#include "isoloss/document/text.h"
#include "isoloss/report/terminal_width.h"
#include "json_output.h"
#include "value_names.h"

namespace isoloss::cli {
namespace {

struct CertifyArguments {
  certify::CertifyRequest request;
  bool json = false;
  CiArguments ci;
};

using Certifier = certify::Certificate (*)(
    const certify::CertifyRequest& request, Executor& executor);

ExitCode Certify(Certifier certifier, CertifyArguments& arguments) {
  arguments.ci.Begin();
  Executor executor(AvailableProcessors());
  const certify::Certificate certificate =
      certifier(arguments.request, executor);
  const ExitCode code = certificate.Outcome();
  const document::Report report =
      document::MakeReport(arguments.ci.command(), static_cast<int>(code),
                           {certify::ResultOf(certificate)});
  arguments.ci.Write(report);
  const document::Document document = certify::DocumentOf(certificate);
  if (arguments.json) {
    PrintJsonText(document::RenderJson(document));
  } else {
    fmt::print("{}", document::RenderText(
                         document, report::TerminalStyle(/*ascii=*/false)));
  }
  arguments.ci.Annotate(report);
  return code;
}

Action Declare(CLI::App& app, Certifier certifier, const char* name,
               const char* help, const char* of_logs) {
  auto arguments = std::make_shared<CertifyArguments>();
  AddOption(app, "runs", arguments->request.paths, of_logs)
      .Required()
      .TypeName(kAnyFile);
  AddOption(app, "--recipe", arguments->request.recipe,
            "Recipe by which differing operations are judged: a name, or a "
            "TOML file (default: as the logs say)")
      .TypeName(kRecipeName);
  DeclareJson(app, arguments->json, "with all that was compared");
  arguments->ci.Declare(app, std::string("certify ") + name);
  Describe(app, help);
  return [arguments, certifier] { return Certify(certifier, *arguments); };
}

Action DeclareRepeat(CLI::App& app) {
  return Declare(
      app, certify::CertifyRepeat, "repeat",
      "Certify that two or more runs of one commit and setting are equal to "
      "the bit: losses, gradient norms, batches, weights, digests of tensors "
      "and recorded operations. If not, name the first step, the first "
      "operation with equal inputs and another result, and why: exit code 1. "
      "4: too little was recorded",
      "Logs of the runs, of all ranks or merged; also operation files. Those "
      "beside a log that have its name are found unasked");
}

Action DeclareRestart(CLI::App& app) {
  return Declare(
      app, certify::CertifyRestart, "restart",
      "Certify that a run which was interrupted and resumed is equal to the "
      "bit to one that was not. If not, name the state that was lost: exit "
      "code 1. 4: too little was recorded",
      "Log of the run that was never interrupted, then those of the parts of "
      "the other one; of all ranks or merged; also operation files");
}

Action DeclareCertify(CLI::App& app) {
  static constexpr Command kSubcommands[] = {
      {"repeat", "Certify that runs of one commit are equal to the bit",
       "isoloss certify repeat first.h5 second.h5", DeclareRepeat},
      {"restart", "Certify that a resumed run is the one never interrupted",
       "isoloss certify restart whole.h5 before.h5 resumed.h5",
       DeclareRestart}};
  Describe(app,
           "Certificates: runs that are equal to the bit, and what they rest "
           "on (docs/certify.md)");
  return DeclareCommands(app, kSubcommands);
}

}  // namespace

extern constinit const Command kCommand_certify = {
    "certify", "Certify that runs repeat or resume to the bit",
    "isoloss certify repeat first.h5 second.h5", &DeclareCertify};

}  // namespace isoloss::cli
