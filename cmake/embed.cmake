# Writes the text file SOURCE as C source OUTPUT: a string NAME of its bytes.
file(READ ${SOURCE} bytes HEX)
string(REGEX REPLACE "(..)" "'\\\\x\\1'," bytes "${bytes}")
file(WRITE ${OUTPUT} "/* Made of ${SOURCE} by cmake/embed.cmake. */\nextern const char ${NAME}[];\nconst char ${NAME}[] = {${bytes}0};\n")
