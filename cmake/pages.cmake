# Writes the manual pages and the completions of shells that HEARTH prints into the directory OUT, as they are installed.
file(MAKE_DIRECTORY ${OUT}/man/man1 ${OUT}/bash-completion/completions ${OUT}/zsh/site-functions ${OUT}/fish/vendor_completions.d)

function(print_to file)
  execute_process(COMMAND ${HEARTH} ${ARGN} OUTPUT_FILE ${OUT}/${file} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

execute_process(COMMAND ${HEARTH} --help OUTPUT_VARIABLE help COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "\n  [a-z]+ " lines "${help}")
foreach(line ${lines})
  string(REGEX REPLACE "[\n ]" "" name "${line}")
  print_to(man/man1/hearth-${name}.1 man ${name})
endforeach()
print_to(man/man1/hearth.1 man)
print_to(bash-completion/completions/hearth completion bash)
print_to(zsh/site-functions/_hearth completion zsh)
print_to(fish/vendor_completions.d/hearth.fish completion fish)
file(TOUCH ${OUT}/made)
