#include "isoloss/runlog/writer.h"

#include "isoloss/runlog/rows.h"
#include "isoloss/runlog/schema_writer.h"
#include "isoloss/runlog/sealed_file.h"

namespace isoloss::runlog {

void WriteRunLog(const RunLog& log, const std::filesystem::path& path) {
  CheckSize(RunLog(), log);
  WriteSealedFile(path, kRunLogFile, [&log](const h5::Handle& file) {
    WriteColumns(file, "run log", SchemaOf<RunLog>(), View(log));
  });
}

}  // namespace isoloss::runlog
